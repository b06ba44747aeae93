"""The Spark session: Java, jars, the JVM, its tuning, locks and errors."""
