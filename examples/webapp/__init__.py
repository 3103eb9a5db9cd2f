"""A web app whose orders survive kills: Starlette, a worker beside it, and progress by SSE."""
