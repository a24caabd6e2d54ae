// Package workflow is the DAG language of Fanjet: it parses a workflow document, builds
// and validates its graph, evaluates its expressions, and decides which node moves next.
//
// It is pure: no clock, no dice, no I/O. It never learns of workers, brokers or tables;
// the engine calls it with the states of the nodes and carries out what it decides.
package workflow
