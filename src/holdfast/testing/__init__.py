"""For tests of your own: prove that an agent survives a crash anywhere."""
