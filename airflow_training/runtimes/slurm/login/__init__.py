"""The way to a cluster from elsewhere: one connection by SSH, at whose other end the same runtime is asked."""
