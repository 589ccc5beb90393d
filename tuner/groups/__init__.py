"""Groups of workers in the driver: several processes that train one trial together."""
