"""The workspace: readable files, the face of the log, and the harness that works on them."""
