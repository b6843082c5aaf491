// Package bcp47 is the code system of language tags, urn:ietf:bcp:47 (RFC 5646): a grammar, whose codes cannot be listed.
//
//	bcp47.go      the code system, and what a tag is called
//	tag.go        reads a tag: why a code is none, and the canonical form
//	registry.go   IANA's Language Subtag Registry, read when it is first needed
//
// A tag is a code if it is valid (RFC 5646 §2.2.9) and in the case that §2.1.1 recommends. Extensions may have any singleton, and
// what is in them is not looked at. That a variant follows another language than it was registered for is a comment on the tag,
// not a fault.
package bcp47
