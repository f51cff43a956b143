"""What does a node do with the devices that it is linked to?"""
