"""HTTP/1.1 client for load: gevent sockets, geventhttpclient's parser, a total deadline and an exact account of each request."""
