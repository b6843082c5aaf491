package terminology

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
)

// What an [Error] may wrap, so that a caller can tell whether another server might know better.
var (
	// ErrUnknown is wrapped when the value set, or its version, is not in the library.
	ErrUnknown = errors.New("value set not known")

	// ErrIncomplete is wrapped when the value set is in the library but something that its expansion
	// needs is not: a code system, or a version of it, a value set it imports, or the knowledge to
	// evaluate a filter.
	ErrIncomplete = errors.New("content missing")

	// ErrUnsupported is wrapped when the request asks for something that cannot be had here, as a definition
	// as it was on a date before that of the one that is here.
	ErrUnsupported = errors.New("not supported")
)

// Error is a failed operation. It is returned, never written: the caller renders it, as an
// OperationOutcome, and must escape what is in it, which may repeat parts of the request.
// [Error.OperationOutcome] does so.
type Error struct {
	// Status is the HTTP status code.
	Status int

	// Code is the issue type, from http://hl7.org/fhir/issue-type.
	Code string

	// Text says what is wrong, for a person.
	Text string

	// TxCode says what is wrong for a program, by a code of
	// http://hl7.org/fhir/tools/CodeSystem/tx-issue-type; empty where none of them fits.
	TxCode string

	// MessageID tells this kind of message from others, by the names that the servers of the HL7
	// terminology ecosystem share; empty where there is none.
	MessageID string

	// Expression says where the fault is, in FHIRPath; nil where that cannot be said.
	Expression []string

	// Err is the cause; nil if there is no more to say.
	Err error

	// Missing are definitions that are not here, or not with their content, and without which the operation
	// has no answer; nil where that is not the reason. There may be more than are named.
	Missing []Missing

	// Provisional is the answer that can be given without what is missing, for when nobody else has a better one;
	// see [Handler.Others]. Nil: there is none.
	Provisional *Provisional
}

// Provisional is an answer, with status 200, that says no only for lack of definitions.
type Provisional struct {
	// ContentType is the media type of Body.
	ContentType string

	// Body is the resource, in the format that was asked for.
	Body []byte
}

// Missing is a definition that is needed and not here.
type Missing struct {
	// Kind is the type of the resource: CodeSystem, ValueSet or ConceptMap.
	Kind string

	// Canonical is its url, or url|version where only that version will do; empty where only its id is known, or
	// where any other concept map may do.
	Canonical string

	// ID is its id; empty where it is known by its canonical.
	ID string
}

// String names the definition, for a person.
func (m Missing) String() string { return m.Kind + " " + m.Canonical + m.ID }

// missing is a list of one definition.
func missing(kind, url, version string) []Missing {
	return []Missing{{Kind: kind, Canonical: canonical(url, version)}}
}

// Issue is one of OperationOutcome.issue.
type Issue struct {
	// Severity is error, warning or information.
	Severity string

	// Code is the issue type, from http://hl7.org/fhir/issue-type.
	Code string

	// TxCode is details.coding.code, of system [TxIssueType]; empty: details has no coding.
	TxCode string

	// MessageID is the value of the extension [MessageIDExtension]; empty: the issue has none.
	MessageID string

	// Text is details.text.
	Text string

	// Expression says where the fault is, in FHIRPath; nil where that cannot be said.
	Expression []string
}

// Names that an [Issue] is written with.
const (
	// TxIssueType is the code system of the codes in OperationOutcome.issue.details.
	TxIssueType = "http://hl7.org/fhir/tools/CodeSystem/tx-issue-type"

	// MessageIDExtension is the url of the extension that tells kinds of messages apart.
	MessageIDExtension = fhirjson.ExtensionBase + "operationoutcome-message-id"
)

// Error returns the text.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// IssueType returns the issue type for OperationOutcome.issue.code.
func (e *Error) IssueType() string { return e.Code }

// Diagnostics returns the text for OperationOutcome.issue.diagnostics.
func (e *Error) Diagnostics() string { return e.Text }

// Issues returns what the OperationOutcome for the error holds; there is always one.
func (e *Error) Issues() []Issue {
	return []Issue{{
		Severity: "error", Code: e.Code, TxCode: e.TxCode, MessageID: e.MessageID, Text: e.Text, Expression: e.Expression,
	}}
}

// OperationOutcome returns the error as a resource, in JSON.
func (e *Error) OperationOutcome() []byte { return appendOutcome(nil, e.Issues()) }

// issue returns an error with codes for programs.
func issue(status int, code, txCode, messageID, text string) *Error {
	return &Error{Status: status, Code: code, TxCode: txCode, MessageID: messageID, Text: text}
}

// located adds to a fault in a filter where the filter is.
func located(err error, list string, i int) error {
	var e *Error
	if errors.As(err, &e) && len(e.Expression) == 1 && strings.HasPrefix(e.Expression[0], "filter[") {
		e.Expression[0] = fmt.Sprintf("%s[%d].%s", list, i, e.Expression[0])
	}
	return err
}

// badRequest is the error for a parameter that is wrong in itself.
func badRequest(code, format string, args ...any) error {
	return &Error{Status: http.StatusBadRequest, Code: code, Text: fmt.Sprintf(format, args...)}
}

// unprocessable is the error for a value set that cannot be expanded because its definition is wrong.
func unprocessable(code, format string, args ...any) error {
	return &Error{Status: http.StatusUnprocessableEntity, Code: code, Text: fmt.Sprintf(format, args...)}
}

// incomplete is the error for a value set that cannot be expanded with what is in the library.
func incomplete(code, format string, args ...any) *Error {
	return &Error{Status: http.StatusUnprocessableEntity, Code: code, Text: fmt.Sprintf(format, args...), Err: ErrIncomplete}
}
