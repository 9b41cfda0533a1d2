"""Remote objects: the protocol by which hidden tests use the objects of a submission in another process."""
