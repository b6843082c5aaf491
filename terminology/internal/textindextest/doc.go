// Package textindextest helps to test what searches texts: documents and filters made at random (documents.go), and
// the rule of the search by the letter, slow and plain (rule.go): how well a document matches (tier.go, query.go), by words
// (words.go) and parts of compounds (compounds.go) that fit (fit.go, languages.go) the runs of a filter (segments.go), and
// what words with typos are read as (typos.go).
package textindextest
