"""What `wardround` offers: the table of commands, how they are found and shown, and completion in a shell."""
