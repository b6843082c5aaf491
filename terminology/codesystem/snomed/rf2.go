package snomed

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// Limits on a file, so that a foreign or hostile file is rejected before it uses much memory.
const (
	maxLine    = 1 << 20 // bytes
	maxColumns = 64
)

// rf2File reads a file in Release Format 2: tab-separated lines in UTF-8. The first line contains the column names. Columns are
// found by name, because publishers add and move columns.
type rf2File struct {
	name    string
	line    int
	columns []string
	fields  [][]byte // fields of the current line, valid until the next one is read
	in      *bufio.Reader
	file    io.Closer

	// The last date and its packed form. Rows often repeat the date of the row before.
	lastDate   []byte
	lastPacked date

	// The last module and its number.
	lastModule       sctid
	lastModuleNumber uint16
}

// openRF2 opens a file and reads its header. It returns the indexes of the required columns in the order of their names.
func openRF2(r *definitions.Release, name string, required ...string) (*rf2File, []int, error) {
	file, err := r.Open(name)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	f := &rf2File{name: name, file: file, in: bufio.NewReaderSize(file, maxLine)}
	at, err := f.readHeader(required)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return f, at, nil
}

func (f *rf2File) readHeader(required []string) ([]int, error) {
	line, err := f.readLine()
	if err != nil {
		return nil, f.errorf("no header: %w", err)
	}
	for name := range bytes.SplitSeq(bytes.TrimPrefix(line, []byte("\ufeff")), []byte{'\t'}) {
		if f.columns = append(f.columns, string(name)); len(f.columns) > maxColumns {
			return nil, f.errorf("more than %d columns", maxColumns)
		}
	}
	at := make([]int, len(required))
	for i, name := range required {
		at[i] = slices.IndexFunc(f.columns, func(column string) bool { return strings.EqualFold(column, name) })
		if at[i] < 0 {
			return nil, f.errorf("no column %s in the header", name)
		}
	}
	return at, nil
}

// readLine returns the next line without its end, or [io.EOF].
func (f *rf2File) readLine() ([]byte, error) {
	line, err := f.in.ReadSlice('\n')
	if f.line++; err == nil {
		line = bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'})
	}
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("longer than %d bytes", maxLine)
	case errors.Is(err, io.EOF) && len(line) > 0:
		return nil, fmt.Errorf("the file ends within this line: %w", io.ErrUnexpectedEOF)
	case err != nil:
		return nil, err
	case bytes.IndexByte(line, 0) >= 0:
		return nil, errors.New("contains a NUL byte")
	case !utf8.Valid(line):
		return nil, errors.New("not UTF-8")
	}
	return line, nil
}

// each reads each line, calls visit, and closes the file.
func (f *rf2File) each(visit func() error) (err error) {
	defer func() { err = errors.Join(err, f.file.Close()) }()
	for {
		line, err := f.readLine()
		if err == io.EOF { //nolint:errorlint // readLine returns it unwrapped
			return nil
		}
		if err != nil {
			return f.errorf("%w", err)
		}
		if f.split(line); len(f.fields) != len(f.columns) {
			return f.errorf("%d columns, but the header has %d", len(f.fields), len(f.columns))
		}
		if err := visit(); err != nil {
			return err
		}
	}
}

// split sets the fields of a line. It stops after one field too many.
func (f *rf2File) split(line []byte) {
	f.fields = f.fields[:0]
	for field := range bytes.SplitSeq(line, []byte{'\t'}) {
		if f.fields = append(f.fields, field); len(f.fields) > len(f.columns) {
			return
		}
	}
}

// errorf returns an error that names the file and line.
func (f *rf2File) errorf(format string, arguments ...any) error {
	return fmt.Errorf("%s line %d: %w", f.name, f.line, fmt.Errorf(format, arguments...))
}

// sctid is an identifier of a component (SNOMED CT Identifier, 6 to 18 digits).
type sctid uint64

// parseSCTID parses an identifier. ok is false for invalid text.
func parseSCTID(text []byte) (id sctid, ok bool) {
	if len(text) < 6 || len(text) > 18 || text[0] == '0' {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		id = id*10 + sctid(c-'0')
	}
	return id, true
}

// sctid returns the identifier in a column.
func (f *rf2File) sctid(column int) (sctid, error) {
	id, ok := parseSCTID(f.fields[column])
	if !ok {
		return 0, f.errorf("%s is not an SCTID: %q", f.columns[column], truncate(f.fields[column]))
	}
	return id, nil
}

// isActive reports whether the column active is 1.
func (f *rf2File) isActive(column int) (bool, error) {
	switch string(f.fields[column]) {
	case "1":
		return true, nil
	case "0":
		return false, nil
	}
	return false, f.errorf("%s is neither 0 nor 1: %q", f.columns[column], truncate(f.fields[column]))
}

// truncate shortens a value for an error message.
func truncate(value []byte) []byte { return value[:min(len(value), 40)] }

// date is an effectiveTime in 16 bits: years since 1970, month and day. Dates have the same order as their packed form.
type date uint16

// minYear is the first year of a [date].
const minYear = 1970

// parseDate parses a date such as 20260801.
func parseDate(text []byte) (date, bool) {
	if len(text) != 8 {
		return 0, false
	}
	n, ok := parseNumber(text, 100_000_000)
	year, month, day := int(n/10000)-minYear, n/100%100, n%100
	if !ok || year < 0 || year > 127 || month < 1 || month > 12 || day < 1 || day > 31 {
		return 0, false
	}
	return date(uint32(year)<<9 | month<<5 | day), true
}

// String returns the date in the format of RF2.
func (d date) String() string {
	return fmt.Sprintf("%04d%02d%02d", minYear+int(d>>9), int(d>>5&15), int(d&31))
}

// date returns the date in a column, or 0 if it is empty, as in releases that are not published.
func (f *rf2File) date(column int) (date, error) {
	text := f.fields[column]
	if len(text) == 0 {
		return 0, nil
	}
	if bytes.Equal(text, f.lastDate) {
		return f.lastPacked, nil
	}
	d, ok := parseDate(text)
	if !ok {
		return 0, f.errorf("%s is not a date: %q", f.columns[column], truncate(text))
	}
	f.lastDate, f.lastPacked = append(f.lastDate[:0], text...), d
	return d, nil
}

// FHIR returns the date in the format of FHIR.
func (d date) FHIR() string {
	s := d.String()
	return s[:4] + "-" + s[4:6] + "-" + s[6:]
}
