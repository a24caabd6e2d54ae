// Package clustertest holds the tests of package broker against a cluster of three servers
// with three replicas. They are apart from the others because nine raft groups and three
// servers in one process want the processors for themselves.
package clustertest
