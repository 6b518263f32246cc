"""What the commands show: lines, and progress on what takes long."""
