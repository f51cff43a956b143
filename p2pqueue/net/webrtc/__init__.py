"""How do two linked devices come to speak over WebRTC, and what goes over it how?"""
