// Package child runs a program so that nothing of it stays: in a process group of its own, with
// a mark in its environment by which even descendants that left the group are found, and with
// output that is read in bounded memory. It is for the built-in processors that start programs.
package child
