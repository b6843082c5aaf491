// Package bcp13 implements the code system of media types, urn:ietf:bcp:13 (RFC 6838). A table contains registered and common
// media types. A grammar accepts other subtypes of registered top-level types, and parameters (RFC 2045 §5.1). SOURCE.md
// describes the origin of the table.
package bcp13

import (
	"bytes"
	_ "embed"
	"regexp"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/embeddedtable"
)

//go:generate go run ./generate

//go:embed media-types.json.zst
var mediaTypes []byte

func init() { codesystem.Register(source) }

// source is the code system of media types.
var source = codesystem.Source{
	URL: "urn:ietf:bcp:13", Name: "Media types", CommonCodes: "https://www.iana.org/assignments/media-types",
	Copyright: "IANA's registry of media types and others in use; from the npm package mime-db, © Jonathan Ong and Douglas Christopher Wilson, MIT License",
	Members:   `{"id":"bcp-13","title":"BCP 13: media types"}`,
	System:    system{embeddedtable.New(mediaTypes).(table)},
}

// table lists the interfaces that the embedded table implements.
type table interface {
	codesystem.System
	codesystem.List
	codesystem.Searchable
}

// system combines the table and the grammar. Concepts accepted by the grammar are identified by code instead of by number.
type system struct{ table }

// mediaTypePattern matches a media type. Its groups are type/subtype and the parameters.
var mediaTypePattern = regexp.MustCompile(`(?i)^((?:application|audio|example|font|haptics|image|message|model|multipart|text|video|x-[a-z0-9!#$&^_.+-]{1,125})` +
	`/[a-z0-9][a-z0-9!#$&^_.+-]{0,126})` +
	`((?: *; *[a-z0-9!#$%&'*+.^_` + "`" + `|~-]+=(?:[a-z0-9!#$%&'*+.^_` + "`" + `|~-]+|"(?:[ !#-\[\]-~]|\\[ -~])*"))*)$`)

// Locate returns the concept for a media type.
func (s system) Locate(code []byte) (codesystem.Concept, bool) {
	if c, ok := s.table.Locate(code); ok {
		return c, true
	}
	parts := mediaTypePattern.FindSubmatch(code)
	if parts == nil {
		return codesystem.Concept{}, false
	}
	return codesystem.Concept{Code: append(bytes.ToLower(parts[1]), parts[2]...)}, true
}

func (s system) Code(c codesystem.Concept) []byte {
	if c.Code != nil {
		return c.Code
	}
	return s.table.Code(c)
}

// Concept returns the code of a concept, which is also the display, and the flags.
func (s system) Concept(c codesystem.Concept) (code, display []byte, flags codesystem.Flags) {
	if c.Code != nil {
		return c.Code, c.Code, 0
	}
	return s.table.Concept(c)
}

// AppendTexts appends the display of a concept.
func (s system) AppendTexts(dst []codesystem.Text, c codesystem.Concept) []codesystem.Text {
	if c.Code != nil {
		return append(dst, codesystem.Text{Language: s.Language(), Value: c.Code, IsDisplay: true})
	}
	return s.table.AppendTexts(dst, c)
}

// AppendValues appends nothing, because media types have no properties.
func (system) AppendValues(dst []codesystem.Value, _ codesystem.Concept) []codesystem.Value {
	return dst
}

// InvalidReason describes the syntax of media types.
func (system) InvalidReason([]byte) string {
	return "a media type has the form type/subtype with a type registered at IANA or starting with x-, and optional parameters, such as text/plain; charset=utf-8"
}

var _ codesystem.CodeExplainer = system{}
