"""How do writes look while they travel, and what is asked of those that come?"""
