/* SPDX-License-Identifier: MIT */
/* Prints Documentation/errors.md: the catalogue, from the table that the library itself uses. */
#include <pinion/advice.h>
#include <stdio.h>

static const char head[] =
	"# What went wrong, and what to type\n"
	"\n"
	"Made from the table in lib/advice.c: `ninja -C build errors` writes this page anew, and a test holds the two together.\n"
	"\n"
	"A failure of the library is a negative error number and a sentence, `pinion_error()`, which the command prints: what "
	"was\n"
	"refused, the limit, what was needed. Where something can be done, the sentence ends in what to type and in a name in "
	"brackets:\n"
	"\n"
	"    pinion load: nobody holds 'm' in /run/pinion; pinion ls shows what is held; pinion load FILE --name m takes it "
	"[name-unknown]\n"
	"\n"
	"`pinion doctor` ends its lines in the same way, `pinion explain NAME` shows a row of this table, and "
	"`pinion_error_advice()` gives\n"
	"programs its number. Words in capitals stand for what the sentence puts in. Sentences without a name speak of an "
	"argument\n"
	"or of a file's content that is wrong: they say which, and what it must be.\n";

int main(void)
{
	struct pinion_advice_info info = { .size = sizeof(info) };
	char line[512];

	fputs(head, stdout);
	for (unsigned int i = PINION_ADVICE_NONE + 1; !pinion_advice_info(i, &info); i++)
		printf("\n## %s\n\n%s\n\n    %s\n", info.id, info.when, pinion_advice_line(i, NULL, line, sizeof(line)));
	return ferror(stdout) || fclose(stdout) ? 1 : 0;
}
