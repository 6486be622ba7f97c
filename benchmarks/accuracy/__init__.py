"""How far simulated step times are from measured ones: public serving points, simulated end to end and compared."""
