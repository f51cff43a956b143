"""What happens in a worker process: the handler, what it can ask and say, and the words it has for its node?"""
