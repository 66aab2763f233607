"""Settings of Spark as pairs of key and value, for ``SparkConf.setAll`` and ``SparkSession.builder.config``.

``horovod.spark.run`` needs none of them, as Spark never repeats a barrier stage whose rank has failed.
"""

_UNLIMITED = str((1 << 31) - 1)
_ATTEMPTS = "spark.excludeOnFailure.task.maxTaskAttemptsPer"
_STAGE = "spark.excludeOnFailure.stage.maxFailed"
_APPLICATION = "spark.excludeOnFailure.application.maxFailed"

SPARK_CONF_ALWAYS_RESTART_FAILED_TASK = ("spark.task.maxFailures", _UNLIMITED)

# Spark's word for a blacklist is excludeOnFailure.
SPARK_CONF_BLACKLIST_DISABLED = ("spark.excludeOnFailure.enabled", "false")
SPARK_CONF_BLACKLIST_ENABLED = ("spark.excludeOnFailure.enabled", "true")

# An executor or a node on which this very task has failed.
SPARK_CONF_REUSE_FAILED_EXECUTOR = (f"{_ATTEMPTS}Executor", _UNLIMITED)
SPARK_CONF_DONT_REUSE_FAILED_EXECUTOR = (f"{_ATTEMPTS}Executor", "1")
SPARK_CONF_REUSE_FAILED_NODE = (f"{_ATTEMPTS}Node", _UNLIMITED)
SPARK_CONF_DONT_REUSE_FAILED_NODE = (f"{_ATTEMPTS}Node", "1")

# One on which any task of the stage, or of the application, has failed.
SPARK_CONF_REUSE_FAILING_EXECUTOR = (f"{_STAGE}TasksPerExecutor", _UNLIMITED)
SPARK_CONF_DONT_REUSE_FAILING_EXECUTOR = (f"{_STAGE}TasksPerExecutor", "1")
SPARK_CONF_REUSE_FAILING_NODE = (f"{_STAGE}ExecutorsPerNode", _UNLIMITED)
SPARK_CONF_DONT_REUSE_FAILING_NODE = (f"{_STAGE}ExecutorsPerNode", "1")
SPARK_CONF_REUSE_FAILING_EXECUTOR_IN_APP = (f"{_APPLICATION}TasksPerExecutor", _UNLIMITED)
SPARK_CONF_DONT_REUSE_FAILING_EXECUTOR_IN_APP = (f"{_APPLICATION}TasksPerExecutor", "1")
SPARK_CONF_REUSE_FAILING_NODE_IN_APP = (f"{_APPLICATION}ExecutorsPerNode", _UNLIMITED)
SPARK_CONF_DONT_REUSE_FAILING_NODE_IN_APP = (f"{_APPLICATION}ExecutorsPerNode", "1")
