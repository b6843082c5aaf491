// Package bcp47 implements the code system of language tags, urn:ietf:bcp:47 (RFC 5646), as a grammar.
//
//	bcp47.go      the code system, and the names of tags
//	tag.go        parses a tag: errors and the canonical form
//	registry.go   IANA's Language Subtag Registry, read on first use
//
// A code is a valid tag (RFC 5646 §2.2.9) in the case that §2.1.1 recommends. Any singleton can introduce an extension. Its
// content is not validated. A variant after a language for which it is not registered results in a comment on the tag, not in
// an error.
package bcp47
