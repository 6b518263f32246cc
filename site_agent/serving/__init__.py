"""The agent, its link, its commands, and the factory that opens a dataset."""
