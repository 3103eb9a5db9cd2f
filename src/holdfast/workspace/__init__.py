"""The workspace: readable files, which are the face of the log, and the harness that works on them."""
