// Package outcome implements the errors of terminology operations and their OperationOutcome (R4 §2.29.1).
package outcome

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

// Errors that an [Error] wraps if another server may be able to serve the request.
var (
	// ErrUnknown means that the value set or its version is not loaded.
	ErrUnknown = errors.New("value set not loaded")

	// ErrIncomplete means that a dependency of the value set is missing: a code system or version, an imported value set, or
	// support for a filter.
	ErrIncomplete = errors.New("required content not loaded")

	// ErrUnsupported means that the request is not supported, e.g. a date before that of the definition.
	ErrUnsupported = errors.New("request not supported")
)

// Error is the error of an operation. The caller writes the response, with [Error.OperationOutcome] or in another form. It may
// contain parts of the request, which must be escaped.
type Error struct {
	// Status is the HTTP status code.
	Status int

	// Code is the issue type from http://hl7.org/fhir/issue-type.
	Code string

	// Text is the message for users.
	Text string

	// Detail supplements Text, which has the same wording on all servers. May be empty.
	Detail string

	// TxCode is a code of the code system tx-issue-type, or "".
	TxCode string

	// MessageID is a message ID of the HL7 terminology ecosystem, or "".
	MessageID string

	// Expression is the FHIRPath of the invalid element, or nil if it is unknown.
	Expression []string

	// Err is the cause of the error, or nil.
	Err error

	// Missing are the required definitions that are not loaded or have no content. The list may be incomplete.
	Missing []MissingDefinition

	// Provisional is the response if the missing definitions are unavailable, or nil; see HasOtherServers of api.Handler.
	Provisional *Provisional
}

// Provisional is a response with status 200 and a result that is negative because definitions are missing.
type Provisional struct {
	// ContentType is the media type of Body.
	ContentType string

	// Body is the resource in the requested format.
	Body []byte
}

// MissingDefinition is a required definition that is not loaded.
type MissingDefinition struct {
	// ResourceType is the resource type: CodeSystem, ValueSet or ConceptMap.
	ResourceType string

	// Canonical is the URL, or url|version for a specific version. It is empty if only ID is known or any concept map would do.
	Canonical string

	// ID is the resource ID. It is empty if Canonical is known.
	ID string
}

// String returns a description of the definition for messages.
func (m MissingDefinition) String() string { return m.ResourceType + " " + m.Canonical + m.ID }

// MissingOf returns a list with a single missing definition.
func MissingOf(kind, url, version string) []MissingDefinition {
	return []MissingDefinition{{ResourceType: kind, Canonical: Canonical(url, version)}}
}

// Issue is an entry of OperationOutcome.issue.
type Issue struct {
	// Severity is "error", "warning" or "information".
	Severity string

	// Code is the issue type from http://hl7.org/fhir/issue-type.
	Code string

	// TxCode is details.coding.code in the code system tx-issue-type. If it is empty, there is no coding.
	TxCode string

	// MessageID is the value of the extension operationoutcome-message-id. If it is empty, there is no extension.
	MessageID string

	// Text is details.text. In diagnostics, Detail is appended to it unless it is empty.
	Text, Detail string

	// Expression is the FHIRPath of the invalid element, or nil if it is unknown.
	Expression []string
}

// txIssueType is the code system of OperationOutcome.issue.details.
const txIssueType = "http://hl7.org/fhir/tools/CodeSystem/tx-issue-type"

// messageIDExtension is the URL of the extension for [Issue.MessageID].
const messageIDExtension = fhirjson.ExtensionBase + "operationoutcome-message-id"

// Error returns the text of the error.
func (e *Error) Error() string { return e.Text }

// Unwrap returns the cause of the error.
func (e *Error) Unwrap() error { return e.Err }

// IssueType returns the issue type for OperationOutcome.issue.code.
func (e *Error) IssueType() string { return e.Code }

// Diagnostics returns the text for OperationOutcome.issue.diagnostics.
func (e *Error) Diagnostics() string { return e.Issues()[0].diagnostics() }

// Issues returns the single issue of the error's OperationOutcome.
func (e *Error) Issues() []Issue {
	return []Issue{{Severity: "error", Code: e.Code, TxCode: e.TxCode, MessageID: e.MessageID, Text: e.Text, Detail: e.Detail, Expression: e.Expression}}
}

// OperationOutcome returns the error as an OperationOutcome in JSON.
func (e *Error) OperationOutcome() []byte { return OperationOutcome(e.Issues()) }

// OperationOutcome returns an OperationOutcome with the given issues in JSON.
func OperationOutcome(issues []Issue) []byte {
	dst := []byte(`{"resourceType":"OperationOutcome"`)
	list := fhirjson.Array{Name: "issue"}
	for i := range issues {
		dst = issues[i].append(list.Next(dst))
	}
	return append(list.End(dst), '}')
}

func (i *Issue) append(dst []byte) []byte {
	start := len(dst)
	if i.MessageID != "" {
		dst = append(dst, `,"extension":[{"url":"`+messageIDExtension+`","valueString":`...)
		dst = append(fhirjson.AppendString(dst, i.MessageID), '}', ']')
	}
	dst = fhirjson.AppendMember(dst, "severity", i.Severity)
	dst = fhirjson.AppendMember(dst, "code", i.Code)
	dst = append(dst, `,"details":{`...)
	if i.TxCode != "" {
		dst = append(dst, `"coding":[{"system":"`+txIssueType+`","code":`...)
		dst = append(fhirjson.AppendString(dst, i.TxCode), `}],`...)
	}
	dst = append(dst, `"text":`...)
	dst = append(fhirjson.AppendString(dst, i.Text), '}')
	dst = fhirjson.AppendMember(dst, "diagnostics", i.diagnostics())
	dst = append(appendStrings(dst, "expression", i.Expression), '}')
	dst[start] = '{' // replaces the leading comma
	return dst
}

func (i *Issue) diagnostics() string {
	if i.Detail == "" {
		return i.Text
	}
	return i.Text + ": " + i.Detail
}

func appendStrings(dst []byte, name string, values []string) []byte {
	list := fhirjson.Array{Name: name}
	for _, value := range values {
		dst = fhirjson.AppendString(list.Next(dst), value)
	}
	return list.End(dst)
}

// New returns an Error with the given status, codes and text.
func New(status int, code, txCode, messageID, text string) *Error {
	return &Error{Status: status, Code: code, TxCode: txCode, MessageID: messageID, Text: text}
}

// BadRequest returns an error with status 400 for an invalid parameter.
func BadRequest(code, format string, args ...any) error {
	return &Error{Status: http.StatusBadRequest, Code: code, Text: fmt.Sprintf(format, args...)}
}

// Unprocessable returns an error with status 422 for an invalid definition or a request that is too costly.
func Unprocessable(code, format string, args ...any) error {
	return &Error{Status: http.StatusUnprocessableEntity, Code: code, Text: fmt.Sprintf(format, args...)}
}

// NewIncomplete returns an error that wraps ErrIncomplete.
func NewIncomplete(code, format string, args ...any) *Error {
	return &Error{Status: http.StatusUnprocessableEntity, Code: code, Text: fmt.Sprintf(format, args...), Err: ErrIncomplete}
}

// NewUnknown returns an error that wraps ErrUnknown, for a definition that is not loaded.
func NewUnknown(messageID, text string, missing ...MissingDefinition) *Error {
	e := New(http.StatusNotFound, "not-found", "not-found", messageID, text)
	e.Err, e.Missing = ErrUnknown, missing
	return e
}

// Canonical returns url|version, or only the URL if version is empty (R4 §2.24.0.6).
func Canonical(url, version string) string {
	if version == "" {
		return url
	}
	return url + "|" + version
}

// SplitCanonical splits a canonical into URL and version. The version is empty if there is none.
func SplitCanonical(s string) (url, version string) {
	url, version, _ = strings.Cut(s, "|")
	return url, version
}

// MaxResponseSize is the maximum size in bytes of a response that consists of many parts.
const MaxResponseSize = 64 << 20

// NewTooLong returns the error for a response larger than MaxResponseSize.
func NewTooLong() error {
	return Unprocessable("too-costly", "the response would be larger than %s; request less at once", fhirjson.FormatSize(MaxResponseSize))
}
