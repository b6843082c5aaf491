// Package weights reads files with usage frequencies of codes, e.g. in orders, diagnoses or claims. Search ranks frequent codes
// before other equally good matches.
//
// A file begins with the URL of a code system or value set, followed by lines with a code and a count:
//
//	#! http://hl7.org/fhir/sid/icd-10-cm
//	I10,48211
//	E11.9,30102
//
// CSV files (RFC 4180) exported by other software are supported too. Their header contains the column names in any order,
// separated by commas, semicolons or tabs. One column may contain the code system. [Weights.Read] describes the rules.
package weights

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxCodes is the maximum total number of codes in all files.
const maxCodes = 2_000_000

var errTooManyCodes = fmt.Errorf("more than %d codes with weights in total", maxCodes)

// Weights contains tables by the URL of a code system or value set. The zero value and nil contain none.
type Weights struct {
	tables map[string]Table
	rows   int
}

// TableFor returns the table for the URL of a code system or value set, or nil.
func (w *Weights) TableFor(url string) Table {
	if w == nil {
		return nil
	}
	return w.tables[url]
}

// All yields all URLs with their tables, sorted by URL.
func (w *Weights) All() iter.Seq2[string, Table] {
	return func(yield func(string, Table) bool) {
		if w == nil {
			return
		}
		for _, url := range slices.Sorted(maps.Keys(w.tables)) {
			if !yield(url, w.tables[url]) {
				return
			}
		}
	}
}

// add increases the weight of a code.
func (w *Weights) add(url, code string, weight float64) error {
	t := w.tables[url]
	if t == nil {
		if w.tables == nil {
			w.tables = make(map[string]Table)
		}
		t = make(Table)
		w.tables[url] = t
	}
	if _, ok := t[code]; !ok {
		if w.rows++; w.rows > maxCodes {
			return errTooManyCodes
		}
	}
	t[code] += weight
	return nil
}

// Table contains the weights of the codes of a code system or value set.
type Table map[string]float64

// Weight returns the weight of a code; 0 if it is unknown.
func (t Table) Weight(code []byte) float64 { return t[string(code)] }

// All yields the codes with their weights, sorted by code.
func (t Table) All() iter.Seq2[string, float64] {
	return func(yield func(string, float64) bool) {
		for _, code := range slices.Sorted(maps.Keys(t)) {
			if !yield(code, t[code]) {
				return
			}
		}
	}
}

// maxLineLength is the maximum length of a line in bytes.
const maxLineLength = 64 << 10

var (
	errNoURL          = errors.New(`no code system or value set specified: precede this line with a line "#! <url>", or add a column "system"`)
	errTooFewColumns  = errors.New("too few columns: expected a code and a count")
	errTooManyColumns = errors.New(`more than two columns: add a header line with the columns "code" and "count"`)
	errNoCode         = errors.New("no code")
)

// Read reads a file and adds its counts. Counts for the same code are summed, even across files.
//
//   - A line "#! <url>" sets the code system or value set of the following lines, for all versions. Other lines that start with
//     # are comments.
//   - All other lines contain a code and a count, separated by a comma, semicolon or tab, and quoted as in RFC 4180 if
//     necessary. A count is a nonnegative number.
//   - The first line of the file and of each "#!" section may be a header with the columns code and count in any case and
//     order. Other columns are ignored, except a column system, which contains the code system in a file without "#!".
//
// Errors contain the line number.
func (w *Weights) Read(ctx context.Context, r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLineLength)
	f := fileReader{weights: w, mayBeHeader: true}
	n := 0
	for lines.Scan() {
		n++
		if err := errors.Join(ctx.Err(), f.readLine(strings.TrimPrefix(lines.Text(), "\ufeff"))); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d: %w", n+1, err)
	}
	return nil
}

// fileReader is the state of reading a file.
type fileReader struct {
	weights     *Weights
	url         string
	mayBeHeader bool // whether the next line may be a header
	separator   string
	columns     *columns // nil if there is no header
}

// columns contains the positions of columns. -1 means that the column is missing.
type columns struct{ system, code, count int }

func (f *fileReader) readLine(line string) error {
	trimmed := strings.TrimSpace(line)
	switch url, scope := strings.CutPrefix(trimmed, "#!"); {
	case scope:
		return f.beginSection(strings.TrimSpace(url))
	case trimmed == "" || trimmed[0] == '#':
		return nil
	}
	if f.mayBeHeader {
		f.separator = separatorOf(line)
	}
	fields, err := f.splitColumns(line)
	if err != nil {
		return err
	}
	if f.mayBeHeader {
		f.mayBeHeader = false
		if f.columns = parseHeader(fields); f.columns != nil {
			return nil
		}
	}
	return f.addRow(fields)
}

// beginSection starts a section for the given code system or value set.
func (f *fileReader) beginSection(url string) error {
	if !strings.Contains(url, ":") || strings.ContainsAny(url, "| \t") {
		return fmt.Errorf("%q is not the URL of a code system or value set without a version", url)
	}
	f.url, f.mayBeHeader, f.columns = url, true, nil
	return nil
}

// separatorOf returns the column separator of a line. Tabs don't occur in headers and codes, and semicolons rarely do.
func separatorOf(line string) string {
	for _, separator := range []string{"\t", ";"} {
		if strings.Contains(line, separator) {
			return separator
		}
	}
	return ","
}

func (f *fileReader) splitColumns(line string) ([]string, error) {
	if !strings.Contains(line, `"`) {
		return strings.Split(line, f.separator), nil
	}
	r := csv.NewReader(strings.NewReader(line))
	r.Comma = rune(f.separator[0])
	fields, err := r.Read()
	if broken, ok := errors.AsType[*csv.ParseError](err); ok {
		err = broken.Err // drops the line number, which is always 1
	}
	return fields, err
}

// parseHeader returns the columns of a header, or nil if the line is not a header.
func parseHeader(fields []string) *columns {
	at := func(name string) int {
		return slices.IndexFunc(fields, func(field string) bool { return strings.EqualFold(strings.TrimSpace(field), name) })
	}
	if c := (columns{at("system"), at("code"), at("count")}); c.code >= 0 && c.count >= 0 {
		return &c
	}
	return nil
}

func (f *fileReader) addRow(fields []string) error {
	c, url := f.columns, f.url
	if c == nil {
		c = &columns{system: -1, code: 0, count: 1}
		if len(fields) > 2 {
			return errTooManyColumns
		}
	}
	if len(fields) <= max(c.code, c.count) {
		return errTooFewColumns
	}
	if url == "" && c.system >= 0 && c.system < len(fields) {
		url = strings.TrimSpace(fields[c.system])
	}
	if url == "" {
		return errNoURL
	}
	code, count := strings.TrimSpace(fields[c.code]), strings.TrimSpace(fields[c.count])
	if code == "" {
		return errNoCode
	}
	weight, err := strconv.ParseFloat(count, 64)
	if err != nil || !(weight >= 0) || math.IsInf(weight, 0) {
		return fmt.Errorf("the count of %q is %q, not a nonnegative number", code, count)
	}
	return f.weights.add(url, code, weight)
}
