// Package icd10convert converts the annual ICD-10-CM and ICD-10-PCS files of the CMS to CodeSystem resources. It reads the code
// descriptions in tabular order.
package icd10convert

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
)

func init() {
	codesystem.RegisterFormats(icd10CM.fileFormat("icd10cm"), icd10PCS.fileFormat("icd10pcs"))
}

// edition describes ICD-10-CM or ICD-10-PCS.
type edition struct {
	url, title string
	hasDot     bool // a dot follows the third character of a code
}

var (
	icd10CM  = edition{"http://hl7.org/fhir/sid/icd-10-cm", "ICD-10-CM", true}
	icd10PCS = edition{"http://www.cms.gov/Medicare/Coding/ICD10", "ICD-10-PCS", false}
)

// fileFormat returns the file format of the edition. name identifies the format and is the prefix of file names.
func (e edition) fileFormat(name string) codesystem.FileFormat {
	return codesystem.FileFormat{
		Name: name, Publisher: "the CMS", File: "order file", Convert: e.convert,
		Help: "an order file of the CMS, such as\n" + name + "_order_2026.txt in its archive of code descriptions in tabular order.",
	}
}

// orderLinePattern matches a line of an order file: number, code, billable flag, short name (60 characters) and long name.
var orderLinePattern = regexp.MustCompile(`^\d{5} ([0-9A-Z]{3,7}) *([01]) (.{60}) (.+)$`)

// convert converts an order file, such as icd10cm_order_2026.txt, to JSON. The parent of a code is the longest of its prefixes
// that occurs earlier in the file. Parents are headings and not billable.
func (e edition) convert(out io.Writer, file io.Reader, version string) error {
	dst := fmt.Appendf(nil, `{"resourceType":"CodeSystem","url":%q,"version":%q,"name":%q,"title":%[3]q,"status":"active","caseSensitive":true,"language":"en",`+
		`"content":"complete","hierarchyMeaning":"is-a","property":[{"code":"parent","type":"code"},{"code":"billable","type":"boolean"}],"concept":[`, e.url, version, e.title)
	seen, lines := make(map[string]bool), bufio.NewScanner(file)
	for lines.Scan() {
		parts := orderLinePattern.FindStringSubmatch(strings.TrimRight(lines.Text(), " \r"))
		if parts == nil {
			return fmt.Errorf("line %d does not have the format of an order file: %q", len(seen)+1, lines.Text())
		}
		if len(seen) > 0 {
			dst = append(dst, ',')
		}
		dst = e.appendConcept(dst, parts, seen)
		seen[parts[1]] = true
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if len(seen) == 0 {
		return errors.New("no codes")
	}
	_, err := out.Write(append(dst, "]}\n"...))
	return err
}

// appendConcept appends the concept described by a line.
func (e edition) appendConcept(dst []byte, parts []string, seen map[string]bool) []byte {
	code, long, short := parts[1], parts[4], strings.TrimSpace(parts[3])
	c := fhirjson.AppendString(append(dst, "\n{\"code\":"...), e.formatCode(code))
	c = fhirjson.AppendMember(c, "display", long)
	if short != long {
		c = append(fhirjson.AppendMember(append(c, `,"designation":[{"language":"en"`...), "value", short), "}]"...)
	}
	c = fmt.Appendf(c, `,"property":[{"code":"billable","valueBoolean":%t}`, parts[2] == "1")
	for n := len(code) - 1; n >= 3; n-- {
		if seen[code[:n]] {
			c = append(fhirjson.AppendMember(append(c, `,{"code":"parent"`...), "valueCode", e.formatCode(code[:n])), '}')
			break
		}
	}
	return append(c, "]}"...)
}

// formatCode returns a code as it is usually written, such as A00.0 for A000.
func (e edition) formatCode(code string) string {
	if e.hasDot && len(code) > 3 {
		return code[:3] + "." + code[3:]
	}
	return code
}
