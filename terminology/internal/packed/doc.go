// Package packed is the concepts of a code system that the program brings along: a CodeSystem resource as JSON, compressed by
// zstd, which is read when its concepts are first asked for.
package packed
