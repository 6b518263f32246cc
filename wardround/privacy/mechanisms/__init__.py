"""What turns a true total into something that may leave the hospital."""
