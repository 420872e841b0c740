"""What a request is: one file per protocol, each a plain locustfile (``locust -f locustfiles/rest_users.py``)."""
