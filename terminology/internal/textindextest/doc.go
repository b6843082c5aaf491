// Package textindextest helps to test what searches texts: documents and filters made at random (documents.go), and
// the rule of the search by the letter, slow and plain: how well a document matches (tier.go), by words (words.go) that
// fit (fit.go) the runs of a filter (segments.go); what words with typos are read as (typos.go); and in which order
// documents come (rule.go).
package textindextest
