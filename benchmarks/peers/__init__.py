"""Which other queues are measured in the same run, and how is each driven?"""
