-- MySQL dump 10.13  Distrib 8.0.36, for Linux (x86_64)
/*!40101 SET NAMES utf8mb4 */;
DROP TABLE IF EXISTS `xxl_job_group`;
CREATE TABLE `xxl_job_group` (
  `id` int NOT NULL AUTO_INCREMENT,
  `app_name` varchar(64) NOT NULL COMMENT '执行器AppName, (the name)',
  `title` varchar(12) NOT NULL,
  `address_type` tinyint NOT NULL DEFAULT '0',
  `address_list` text,
  `update_time` datetime DEFAULT NULL,
  PRIMARY KEY (`id`)
) ENGINE=InnoDB AUTO_INCREMENT=3 DEFAULT CHARSET=utf8mb4;
INSERT INTO `xxl_job_group` VALUES (1,'xxl-job-executor-sample','示例执行器',0,NULL,'2026-01-01 22:21:31'),(2,'Billing_App','Billing',0,NULL,NULL);
CREATE TABLE `xxl_job_info` (
  `id` int NOT NULL AUTO_INCREMENT,
  `job_group` int NOT NULL,
  `job_desc` varchar(255) NOT NULL,
  `add_time` datetime DEFAULT NULL,
  `update_time` datetime DEFAULT NULL,
  `author` varchar(64) DEFAULT NULL,
  `alarm_email` varchar(255) DEFAULT NULL,
  `schedule_type` varchar(50) NOT NULL DEFAULT 'NONE',
  `schedule_conf` varchar(128) DEFAULT NULL,
  `misfire_strategy` varchar(50) NOT NULL DEFAULT 'DO_NOTHING',
  `executor_route_strategy` varchar(50) DEFAULT NULL,
  `executor_handler` varchar(255) DEFAULT NULL,
  `executor_param` varchar(512) DEFAULT NULL,
  `executor_block_strategy` varchar(50) DEFAULT NULL,
  `executor_timeout` int NOT NULL DEFAULT '0',
  `executor_fail_retry_count` int NOT NULL DEFAULT '0',
  `glue_type` varchar(50) NOT NULL,
  `glue_source` mediumtext,
  `glue_remark` varchar(128) DEFAULT NULL,
  `glue_updatetime` datetime DEFAULT NULL,
  `child_jobid` varchar(255) DEFAULT NULL,
  `trigger_status` tinyint NOT NULL DEFAULT '0',
  `trigger_last_time` bigint NOT NULL DEFAULT '0',
  `trigger_next_time` bigint NOT NULL DEFAULT '0',
  PRIMARY KEY (`id`),
  KEY `i_group` (`job_group`,`id`)
) ENGINE=InnoDB;
LOCK TABLES `xxl_job_info` WRITE;
INSERT INTO `xxl_job_info` VALUES
(1,1,'测试任务1','2026-01-01 22:21:31',NULL,'XXL','','CRON','0 0 0 * * ? *','DO_NOTHING','FIRST','demoJobHandler','','SERIAL_EXECUTION',0,0,'BEAN','','GLUE代码初始化',NULL,'',0,0,0),
(2,1,'Close unpaid orders\n--- # not a comment',NULL,NULL,'ann','ops@example.org','FIX_RATE','30','FIRE_ONCE_NOW','SHARDING_BROADCAST','orderCloser','{\"batch\": 100}','DISCARD_LATER',90,3,'BEAN',NULL,NULL,NULL,'4,5',1,0,0),
(3,2,'It''s the bill; (really)',NULL,NULL,'bob',NULL,'CRON','0 30 2 L * ?','FIRE_ONCE_NOW','CONSISTENT_HASH','demoJobHandler','eu','COVER_EARLY',0,1,'BEAN',NULL,NULL,NULL,NULL,1,0,0),
(4,2,'Clean up',NULL,NULL,'bob',NULL,'NONE',NULL,'DO_NOTHING','LEAST_RECENTLY_USED','',_binary 'all','SERIAL_EXECUTION',0,0,'GLUE_SHELL','#!/bin/bash\necho \"cleaning $1\"\nexit 0\n','',NULL,NULL,1,0,0),
(5,9,'Script',NULL,NULL,'bob',NULL,'CRON','0 0 25 * * ?','DO_NOTHING','ROUND','','','SERIAL_EXECUTION',0,0,'GLUE_PYTHON','print(1)','',NOW(),NULL,1,0,0),
(6,1,'again',NULL,NULL,'bob',NULL,'FIX_DELAY','10','OTHER','RANDOM','demoJobHandler','','OTHER',0,0,'BEAN','','',NULL,NULL,1,0,0);
UNLOCK TABLES;
INSERT INTO `xxl_job_log` VALUES (1,'x');
