/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a single text in berthd.yaml must look like. -EINVAL with a sentence that lacks file, line
 * and key; nothing is stored here.
 */
#pragma once

#include "base/error.h"

int config_check_text(const char *value, struct error *err) _must_check_;
int config_check_path(const char *value, struct error *err) _must_check_;   /* absolute */
int config_check_listen(const char *value, struct error *err) _must_check_; /* ADDRESS:PORT */
int config_check_library(const char *value, struct error *err) _must_check_;
/* It ends up in "<PREFIX>-GPU-INIT-FAILED" on a console. */
int config_check_prefix(const char *value, struct error *err) _must_check_;
