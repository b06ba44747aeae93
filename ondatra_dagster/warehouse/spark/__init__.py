"""The Spark session: Java, jars, the JVM and its tuning, the locks, and the messages for Spark's errors."""
