"""The local engine: tasks driven in this process, and by every `holdfast worker`."""
