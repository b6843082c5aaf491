// Package textindextest helps to test what searches texts: documents and filters made at random (documents.go), and
// the rule of the search by the letter, slow and plain (rule.go).
package textindextest
