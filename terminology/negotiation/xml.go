package negotiation

import "errors"

// XMLCodec converts resources between FHIR's JSON and FHIR's XML. Package fhirxml has one and registers it.
type XMLCodec struct {
	// AppendXML appends a resource, given in JSON, as an XML document.
	AppendXML func(dst, resource []byte) ([]byte, error)

	// AppendJSON appends a resource, given as an XML document, in JSON.
	AppendJSON func(dst, document []byte) ([]byte, error)
}

var xmlCodec *XMLCodec // nil: none is registered

// RegisterXML enables XML in requests, responses and definitions. Packages call it from init.
func RegisterXML(c XMLCodec) { xmlCodec = &c }

// HasXML reports whether this build has a codec for XML. Without one, the gateway refuses to write XML (406) and to read it
// (415). The guard's own checks of XML do not need it.
func HasXML() bool { return xmlCodec != nil }

var errNoXML = errors.New("this build cannot convert FHIR XML: import the package terminology/fhirxml, or use JSON")

// AppendXML appends a resource, given in JSON, as an XML document. It fails in a build without XML.
func AppendXML(dst, resource []byte) ([]byte, error) {
	if xmlCodec == nil {
		return dst, errNoXML
	}
	return xmlCodec.AppendXML(dst, resource)
}

// AppendJSON appends a resource, given as an XML document, in JSON. It fails in a build without XML.
func AppendJSON(dst, document []byte) ([]byte, error) {
	if xmlCodec == nil {
		return dst, errNoXML
	}
	return xmlCodec.AppendJSON(dst, document)
}
