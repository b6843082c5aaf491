package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

func TestConvertFile(t *testing.T) {
	t.Parallel()
	format := codesystem.FileFormat{Convert: func(out io.Writer, file io.Reader, version string) error {
		_, err := fmt.Fprintf(out, "version %s of ", version)
		_, copyErr := io.Copy(out, file)
		return errors.Join(err, copyErr)
	}}
	folder := t.TempDir()
	for name, want := range map[string]string{"icd10cm_order_2026.txt": "version 2026 of codes", "icd10cm_order.txt": ""} {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte("codes"), 0o600); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := convertFile(&out, format, file); (err == nil) != (want != "") || out.String() != want {
			t.Errorf("%s: %v, %s", name, err, &out)
		}
	}
	if err := convertFile(new(strings.Builder), format, filepath.Join(folder, "2026")); err == nil {
		t.Error("no error for a file that is not there")
	}
}
