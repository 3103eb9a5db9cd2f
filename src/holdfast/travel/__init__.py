"""Going another way, and going back: forks, rewinds, and the answers that they go by."""
