"""What is an origin, of ours or a bare bucket, and how does a node use one?"""
