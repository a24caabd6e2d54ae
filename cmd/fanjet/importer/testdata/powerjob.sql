SET FOREIGN_KEY_CHECKS=0;
INSERT INTO `powerjob`.`app_info` (`id`, `app_name`, `password`) VALUES (1, 'Shop', 's');
INSERT INTO job_info (id, app_id, job_name, job_description, job_params, time_expression_type, time_expression, execute_type, processor_type, processor_info,
 max_instance_num, concurrency, instance_time_limit, instance_retry_num, task_retry_num, min_cpu_cores, min_memory_space, min_disk_space, status, designated_workers, max_worker_count,
 notify_user_ids, extra, tag, dispatch_strategy, dispatch_strategy_config, lifecycle, alarm_config, log_config, advanced_runtime_config, next_trigger_time) VALUES
 (1, 1, 'nightly-report', 'The report', '{"region": "eu"}', 2, '0 30 2 * * *', 1, 1, 'com.example.Report', 1, 5, 600000, 2, 3, 1.5, 2, 10, 1, 'blue', 3, '', NULL, NULL, 1, NULL, '{"start": 1767225600000, "end": 1798761600000}', NULL, '{"type":1}', NULL, 1),
 (2, 1, '全部重算', NULL, NULL, 3, '5000', 3, 1, 'com.example.Count', 0, 20, 0, 0, 2, 0, 0, 0, 2, '10.0.0.1:27777,10.0.0.2:27777', 0, '1,2', 'x', 'y', 2, NULL, NULL, '{"alertThreshold":1}', NULL, NULL, 1),
 (3, 1, 'window', NULL, 'echo hello', 11, '{"interval":"15","intervalUnit":"MINUTES","startTimeOfDay":"08:00:00","endTimeOfDay":"18:00:00","daysOfWeek":[1,2,3,4,5]}', 1, 1, 'tech.powerjob.official.processors.impl.script.ShellProcessor', 2, 5, 0, 0, 1, 0, 0, 0, 1, NULL, 0, NULL, NULL, NULL, 11, 'tagIn:x', NULL, NULL, NULL, '{"instanceLimitStrategy":1}', 1),
 (4, 1, 'gone', NULL, NULL, 1, NULL, 1, 1, 'x', 0, 5, 0, 0, 0, 0, 0, 0, 99, NULL, 0, NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL, NULL, 1),
 (5, 2, 'step', NULL, NULL, 5, NULL, 2, 4, '18#com.example.Jar', 0, 5, 0, 0, 0, 0, 0, 0, 1, NULL, 0, NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL, NULL, 1),
 (6, 2, 'both days', NULL, NULL, 2, '0 0 0 1 * 2', 1, 1, '', 0, 5, 0, 0, 0, 0, 0, 0, 1, NULL, 0, NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL, NULL, 1);
