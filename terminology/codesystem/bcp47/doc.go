// Package bcp47 is the code system of language tags, urn:ietf:bcp:47 (RFC 5646): a grammar, whose codes cannot be listed.
//
//	bcp47.go    the code system: which tags are codes, and what they are called
//	subtags.go  the parts of a tag
//
// A tag is a code if it is well-formed and its subtags are registered, as far as golang.org/x/text knows the registry.
package bcp47
