// Package bitset holds sets of small numbers, one bit each (bitset.go). A set is a slice of words, so that
// callers can unite or intersect many of them a word at a time.
package bitset
