// Package workflow is the DAG language of Fanjet: it parses a workflow document, builds
// and validates its graph, evaluates its expressions, and decides which node moves next.
//
// It is pure: no clock, no dice, no I/O. It never learns of workers, brokers or tables;
// the engine calls it with the states of the nodes and carries out what it decides.
//
// The way of a workflow: Parse reads a document to a Definition, Build checks it to a Graph,
// Definition.BindParams gives the params of one run, and a Progress over the graph is told
// how nodes ended and answers with Actions. Graph.Params and Graph.Decide evaluate the
// expressions of a node over the results of the nodes before it.
//
// A node runs a job, decides, waits, waits for a signal or an approval, or runs another
// workflow; Parse lists the fields of each. What a person or another workflow does is told to
// the Progress like the end of a job. RetryStates says from where a further attempt of a
// workflow that ended badly goes on.
//
// An expression is hostile input. It is at most 2 KiB and 200 parts; it knows params,
// nodes.<id>.result (of nodes upstream), context and trigger; it has the operators
//
//	== != < <= > >= + - * / % in contains startsWith endsWith && || ! ?: ?? ?. [ ]
//
// list and object literals, and the functions len lower upper trim hasPrefix hasSuffix
// indexOf int float string abs min max get keys. It has no loops, variables or methods.
// Nothing is converted silently: a missing key, a comparison of two kinds, an overflow of 64
// bits and a division by zero are errors. In params, a text that is exactly one ${ } takes
// the value with its type; among other text it is put in as text; $${ is a literal ${.
package workflow
