// Package outcome has the errors of terminology operations, and the OperationOutcome for them (R4 §2.29.1).
//
//	error.go       Error, its issue, and what it says is Missing
//	outcome.go     the issues as JSON
//	canonical.go   url|version, by which everything is named
//	limit.go       how long an answer may be
package outcome
