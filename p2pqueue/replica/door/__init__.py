"""How do the processes of this device's user reach its node?"""
