// Package validate answers $validate-code: a [Validation] becomes a [ValidationResult].
//
//	validate.go                      Validation, ValidationResult
//	codingresult.go                  what is found out about one coding
//	validator.go                     one request: all codings, or the one that is valid
//	candidate.go                     which includes may contain a coding, without an expansion
//	versionchooser.go                in which version of the code system
//	codingvalidator.go               what is wrong with it: codesystemcheck.go, conceptcheck.go, displaychecker.go
//	notes.go, validationresult.go    what the result says
package validate
