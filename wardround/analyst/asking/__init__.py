"""The client, the builder, binding to the study, and questions of several rounds."""
