// Package bcp13 implements the code system of media types, urn:ietf:bcp:13 (RFC 6838): a table of registered and common
// types, and a grammar for other types with a registered top-level type and for parameters (RFC 2045 section 5.1).
// SOURCE.md describes the origin of the table.
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

// source is the code system.
var source = codesystem.Source{
	URL: "urn:ietf:bcp:13", Name: "Media types", CommonCodes: "https://www.iana.org/assignments/media-types",
	Copyright: "IANA's registry of media types and others in use; from the npm package mime-db, © Jonathan Ong and Douglas Christopher Wilson, MIT License",
	Members:   `{"id":"bcp-13","title":"BCP 13: media types"}`,
	System:    system{embeddedtable.New(mediaTypes).(table)},
}

// table contains the interfaces of the packed table.
type table interface {
	codesystem.System
	codesystem.List
	codesystem.Searchable
}

// system combines the table and the grammar. A concept of the grammar has a code instead of a number.
type system struct{ table }

// mediaTypePattern matches a media type; the groups are type/subtype and the parameters.
var mediaTypePattern = regexp.MustCompile(`(?i)^((?:application|audio|example|font|haptics|image|message|model|multipart|text|video|x-[a-z0-9!#$&^_.+-]{1,125})` +
	`/[a-z0-9][a-z0-9!#$&^_.+-]{0,126})` +
	`((?: *; *[a-z0-9!#$%&'*+.^_` + "`" + `|~-]+=(?:[a-z0-9!#$%&'*+.^_` + "`" + `|~-]+|"(?:[ !#-\[\]-~]|\\[ -~])*"))*)$`)

// Locate returns the concept of a media type.
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

// Code returns the code of a concept.
func (s system) Code(c codesystem.Concept) []byte {
	if c.Code != nil {
		return c.Code
	}
	return s.table.Code(c)
}

// Concept returns the code of a concept, which is also its display.
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

// InvalidReason returns the syntax of media types.
func (system) InvalidReason([]byte) string {
	return "a media type has the form type/subtype with a type registered at IANA or starting with x-, and optional parameters, such as text/plain; charset=utf-8"
}

var _ codesystem.CodeExplainer = system{}
