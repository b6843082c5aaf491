// Package bitset holds sets of small numbers, one bit for each (bitset.go). Who needs the words of a set, to unite
// or intersect many of them, reads them as the slice that it is.
package bitset
